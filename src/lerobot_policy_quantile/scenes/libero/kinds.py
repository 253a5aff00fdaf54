"""Objects of LIBERO-Object and their instructions."""

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
    """The bddl's `:language` to put this object into the basket; the shipped base was pretrained on it."""
    return f"pick the {kind.replace('_', ' ')} and place it in the basket"
