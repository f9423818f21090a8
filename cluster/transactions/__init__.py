"""transactions"""
