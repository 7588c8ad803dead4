"""Will it fit, in which phase and on which stage does memory peak, and which one change helps?"""
