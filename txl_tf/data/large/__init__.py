"""Preparing a corpus on many machines with Apache Beam."""
