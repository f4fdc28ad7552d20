"""Readers of the standard files, one format a file: from bytes on disk to Examples. Nothing is unpickled."""
