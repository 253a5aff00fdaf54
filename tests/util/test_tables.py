"""One table in every form, letter by letter."""

from rich.console import Console

from lerobot_policy_quantile.util.tables import aligned, boxed, csv_text, latex, markdown

HEADER, ROWS = ("name", "rate"), [("a_b", "50 %"), ("long, name", "7 %")]


def test_aligned_columns_are_flush_left_then_flush_right_without_spaces_at_the_end():
    assert aligned([HEADER, *ROWS], left=1) == "name        rate\na_b         50 %\nlong, name   7 %\n"
    assert aligned([("a", "b"), ("long", "")], left=2) == "a     b\nlong\n"


def test_markdown_as_short_as_can_be_or_padded():
    assert markdown(HEADER, ROWS) == "| name | rate |\n| --- | --- |\n| a_b | 50 % |\n| long, name | 7 % |\n"
    assert markdown(HEADER, ROWS, padded=True) == (
        "| name       | rate |\n|------------|------|\n| a_b        | 50 % |\n| long, name | 7 %  |\n"
    )


def test_latex_escapes_what_it_would_read_as_commands():
    assert latex(HEADER, [("a_b & \\c~^", "50 %")]) == (
        "\\begin{tabular}{ll}\n  \\toprule\n  name & rate \\\\\n  \\midrule\n"
        "  a\\_b \\& \\textbackslash{}c\\textasciitilde{}\\textasciicircum{} & 50 \\% \\\\\n"
        "  \\bottomrule\n\\end{tabular}\n"
    )


def test_csv_quotes_commas():
    assert csv_text([HEADER, *ROWS]) == 'name,rate\na_b,50 %\n"long, name",7 %\n'


def test_a_box_for_the_terminal_cuts_or_folds_long_words():
    def printed(**options):
        console = Console(width=14, color_system=None)
        with console.capture() as text:
            console.print(boxed("T", ("w",), [("incomprehensible",), ("[green]ok[/]",)], **options))
        return text.get()

    assert "incompreh…" in printed()
    assert "nsible " in printed(fold=True)
    assert "ok" in printed()
    assert "[green]" not in printed()
