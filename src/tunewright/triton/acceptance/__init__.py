"""The acceptance kit: shows on a card what tests here can show on simulated ones only."""
