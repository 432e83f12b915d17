//! Teamster's decisions, pure: the turn machine, policy, budgets, hook chains.
