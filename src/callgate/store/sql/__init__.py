"""The store on SQLite and PostgreSQL. Everything here needs the extra `store`; `callgate.store.SQLStore` is its door."""
