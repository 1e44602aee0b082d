"""Who may do what: signatures, accounts, policies, and the one table that says what each request asks for."""
