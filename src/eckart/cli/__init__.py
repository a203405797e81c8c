"""The command line: eckart reduce | certify | plan."""
