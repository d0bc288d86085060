"""Services and the order of starts: the rules that an application must follow."""
