"""What LIBERO-Object has to be picked up, and how it is asked for."""

KINDS = (
    "alphabet_soup",
    "cream_cheese",
    "salad_dressing",
    "bbq_sauce",
    "ketchup",
    "tomato_sauce",
    "butter",
    "milk",
    "chocolate_pudding",
    "orange_juice",
)
"""In the order of the tasks that name them."""


def instruction_for(kind: str) -> str:
    """The bddl's `:language` when this thing shall go into the basket: what the shipped base was pretrained on."""
    return f"pick the {kind.replace('_', ' ')} and place it in the basket"
