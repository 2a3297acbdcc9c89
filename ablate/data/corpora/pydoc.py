import random

from ablate.data.corpora.base import TextRecipe, register
from ablate.data.text import CorpusError, Text


@register("pydoc")
class Pydoc(TextRecipe):
    """The language reference that CPython ships for help(), its topics in a fixed shuffled order."""

    def text(self) -> Text:
        try:
            from pydoc_data.topics import topics
        except ImportError:
            raise CorpusError(
                "corpus=pydoc: this Python lacks the module pydoc_data.topics (some distributions leave it"
                " out); take corpus=stdlib, corpus=grammar or corpus=file"
            ) from None
        names = sorted(topics)
        random.Random(0).shuffle(names)
        whole = "\n\n".join(topics[name].strip("\n") for name in names) + "\n"
        return Text(lambda: iter([whole]))
