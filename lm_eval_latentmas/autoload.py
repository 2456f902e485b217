"""x"""
def install(): pass
