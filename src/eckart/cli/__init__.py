"""The command line: eckart reduce | complete | recommend | certify | plan."""
