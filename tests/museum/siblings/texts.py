"""A class that one text can't make."""


class TwoTexts:
    def __init__(self, first: str, second: str) -> None:
        self.both = first, second
