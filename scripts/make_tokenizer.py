"""Make the small tokenizer that ships with the `tiny` and `small` backbones.

Byte-level BPE: any text has tokens, nothing is unknown. Trained on instruction-like sentences and on
prompts as the policy writes them, so that a state bin such as " 127" is one token.

    python scripts/make_tokenizer.py
"""

import itertools
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCABULARY = 1024
TARGET = Path(__file__).parents[1] / "src" / "lerobot_policy_quantile" / "policy" / "tokenizer.json"

VERBS = "pick up,put,place,push,pull,open,close,turn on,turn off,move,lift,stack,slide,grasp,reach,pour,wipe,press"
THINGS = (
    "black bowl,plate,mug,red mug,white mug,moka pot,stove,drawer,top drawer,middle drawer,bottom drawer,cabinet,"
    "basket,alphabet soup,cream cheese,salad dressing,bbq sauce,ketchup,tomato sauce,butter,milk,chocolate pudding,"
    "orange juice,wine bottle,wine rack,cookie box,ramekin,book,caddy,microwave,cube,block,green block,yellow cup,"
    "blue ball,box,target,button,lever,door,sponge,towel,tray,obstacle,gripper,object,robot arm"
)
PLACES = (
    "on the table,in the basket,on the plate,on top of the cabinet,next to the plate,in the top drawer,to the left,"
    "to the right,in front of the stove,behind the box,between the plate and the bowl,in the back compartment,"
    "from table center,and place it in the bin,into the box,at the same time,onto the shelf"
)


def sentences() -> list[str]:
    """Instructions of the usual form, and prompts around every state bin."""
    verbs, things, places = (text.split(",") for text in (VERBS, THINGS, PLACES))
    instructions = [f"{v} the {t} {p}" for v, t, p in itertools.product(verbs, things, places)]
    bins = [" ".join(str((start + 37 * i) % 256) for i in range(8)) for start in range(256)]
    prompts = [f"Task: {instructions[7 * i % len(instructions)]}, State: {b};\nAction: " for i, b in enumerate(bins)]
    return instructions[::5] + prompts * 20


def main() -> None:
    """Train and write the tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<pad>", "<bos>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences(), trainer)
    bos = tokenizer.token_to_id("<bos>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", bos)])
    tokenizer.save(str(TARGET), pretty=True)
    print(f"{TARGET}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
