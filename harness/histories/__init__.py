"""histories"""
