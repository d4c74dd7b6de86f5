"""An extension of griffe, which reads the docstrings for the API's pages: fields that are described in lines."""

import re

import griffe

FIELD = re.compile(r"(?!Args|Returns|Raises|Example|Attributes|Yields)\w+(, \w+)*: \S")


class Fields(griffe.Extension):
    """Turns a paragraph of a class with lines `name: description` into a section Attributes, if it has these fields."""

    def on_class(self, *, cls, **_):
        """Called for each class once its members are known."""
        if cls.docstring:
            paragraphs = cls.docstring.value.split("\n\n")
            cls.docstring.value = "\n\n".join(self.section(paragraph, cls.members) for paragraph in paragraphs)

    def section(self, paragraph, members):
        """The paragraph, or the section that it becomes."""
        lines = paragraph.splitlines()
        names = re.findall(r"\w+", lines[0].split(":")[0]) if FIELD.match(paragraph) else []
        if not names or not set(names) <= set(members):
            return paragraph
        entries = []
        for line in lines:
            own = FIELD.match(line)
            for name in re.findall(r"\w+", line.split(":")[0]) if own else [""]:
                entries.append(f"    {name}:{line.split(':', 1)[1]}" if own else f"    {line}")
        return "Attributes:\n" + "\n".join(entries)
