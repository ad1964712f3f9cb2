"""Search spaces: knobs, rules, variants, features and configs."""
