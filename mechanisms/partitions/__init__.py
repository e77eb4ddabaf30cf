"""Which items may be named: partition selection, in one round or several.

Papers: Damien Desfontaines, James Voss, Bryant Gipson, Chinmoy Mandayam, "Differentially private partition selection", PoPETs
2022 (one item of each user); Marika Swanberg, Damien Desfontaines, Samuel Haney, "DP-SIPS: A simpler, more scalable mechanism
for differentially private partition selection", PoPETs 2023 (rounds). Private: import `headcount.mechanisms`.
"""
