"""One HTML page of a fit: pictures, certificate, trace."""
