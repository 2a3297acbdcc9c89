"""The ledger: published claims about heads, frozen before they are tested, and what came of them."""
