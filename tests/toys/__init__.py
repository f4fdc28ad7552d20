"""Small methods, codecs and attacks on the public contract, each a few lines; tests compare them with plain loops.

They lie in a package so that a resumed run can import them by their path, as in 'toys.l2sgd:L2SGD'.
"""
