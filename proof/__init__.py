"""What proves the system and is not shipped: test servers, simulation, fault injection, mutants, the checker."""
