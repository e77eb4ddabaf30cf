"""The shape of a histogram without its items: how many items have which count, and what follows from it.

Paper: Badih Ghazi, Pritish Kamath, Ravi Kumar, Pasin Manurangsi, "Anonymized Histograms in Intermediate Privacy Models", 2022:
in the central, the shuffle and the pan-private model. Private: import `headcount.mechanisms`.
"""
