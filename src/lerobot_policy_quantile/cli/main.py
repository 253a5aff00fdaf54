"""`qhead`: registers the commands. Each is in a file of its own, which imports what it needs when it is called."""

import typer

from lerobot_policy_quantile.cli import (
    alarm,
    calibrate,
    choose_decoder,
    client,
    collect,
    compare,
    data,
    decoders,
    doctor,
    explore,
    export_rerun,
    film,
    pretrain,
    replay,
    report,
    serve,
    spread,
    study_run,
    study_summarise,
    study_two_demo,
    study_verdicts,
    table,
    verify,
)
from lerobot_policy_quantile.cli import eval as eval_
from lerobot_policy_quantile.cli.errors import needs
from lerobot_policy_quantile.cli.options import help_text

METHOD, DATA, EVALUATION, SERVING, STUDIES = "Method", "Data and training", "Evaluation", "Robots", "Paper"

HELP = help_text(
    "Quantile action head for vision-language-action policies.",
    "Train with lerobot-train --policy.type=quantile; these commands do the rest. Every command has --help with"
    " examples.",
    examples=(
        "qhead doctor",
        "qhead study two-demo --settings demo --out runs/demo",
        "qhead eval --policy ours=runs/train/pretrained_model --out runs/a",
    ),
)

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=HELP)
app.command("verify", help=verify.HELP, rich_help_panel=METHOD)(verify.verify)
app.command("decoders", help=decoders.HELP, rich_help_panel=METHOD)(decoders.decoders)
app.command("doctor", help=doctor.HELP, rich_help_panel=METHOD)(doctor.doctor)
app.command("collect", help=collect.HELP, rich_help_panel=DATA)(needs("sim")(collect.collect))
app.command("replay", help=replay.HELP, rich_help_panel=DATA)(needs("sim")(replay.replay))
app.command("pretrain", help=pretrain.HELP, rich_help_panel=DATA)(needs("sim")(pretrain.pretrain))
app.command("eval", help=eval_.HELP, rich_help_panel=EVALUATION)(needs("sim")(eval_.evaluate))
app.command("table", help=table.HELP, rich_help_panel=EVALUATION)(table.table)
app.command("compare", help=compare.HELP, rich_help_panel=EVALUATION)(compare.compare)
app.command("choose-decoder", help=choose_decoder.HELP, rich_help_panel=EVALUATION)(
    needs("sim")(choose_decoder.choose_decoder)
)
app.command("calibrate", help=calibrate.HELP, rich_help_panel=EVALUATION)(calibrate.calibrate)
app.command("spread", help=spread.HELP, rich_help_panel=EVALUATION)(spread.spread)
app.command("explore", help=explore.HELP, rich_help_panel=EVALUATION)(needs("report")(explore.explore))
app.command("film", help=film.HELP, rich_help_panel=EVALUATION)(film.film)
app.command("export-rerun", help=export_rerun.HELP, rich_help_panel=EVALUATION)(
    needs("rerun")(export_rerun.export_rerun)
)
app.command("serve", help=serve.HELP, rich_help_panel=SERVING)(needs("serve")(serve.serve))
app.command("client", help=client.HELP, rich_help_panel=SERVING)(needs("serve")(client.client))
app.command("report", help=report.HELP, rich_help_panel=STUDIES)(needs("report")(report.report))

alarms = typer.Typer(no_args_is_help=True, help="Fit and score an alarm for failures.")
alarms.command("fit", help=alarm.FIT)(alarm.fit)
alarms.command("score", help=alarm.SCORE)(alarm.score)
app.add_typer(alarms, name="alarm", rich_help_panel=EVALUATION)

study = typer.Typer(no_args_is_help=True, help="Run the paper's experiments.")
study.command("two-demo", help=study_two_demo.HELP)(needs("sim", "report")(study_two_demo.two_demo))
study.command("run", help=study_run.HELP)(study_run.run)
study.command("summarise", help=study_summarise.HELP)(needs("report")(study_summarise.summarise))
study.command("verdicts", help=study_verdicts.HELP)(study_verdicts.verdicts)
app.add_typer(study, name="study", rich_help_panel=STUDIES)

converters = typer.Typer(no_args_is_help=True, help="Convert LIBERO-Plus and LIBERO-Pro into the data folder.")
for benchmark, text in data.HELP.items():
    converters.command(benchmark, help=text)(needs("sim")(data.converter(benchmark)))
app.add_typer(converters, name="data", rich_help_panel=DATA)

if __name__ == "__main__":
    app()
