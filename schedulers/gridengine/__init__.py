"""The scheduler ``gridengine``: jobs of Grid Engine, by its programs."""
