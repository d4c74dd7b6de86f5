"""What people run into, a module for each kind of input."""
