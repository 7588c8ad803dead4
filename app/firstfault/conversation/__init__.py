"""How is a follow-up question answered? One protocol; by rule here, by a model elsewhere."""
