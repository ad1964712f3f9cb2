"""What processes that share a store do together: leases and flights, wants, generations, shelves, merging."""
