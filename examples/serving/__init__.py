"""The parts of the HTTP server examples/serve.py. They import TensorFlow and aiohttp, and nothing of txl_tf.

terminal    what a process writes: our lines alone; the server's as lines of JSON
errors      what a request, or the start, can be refused for
limits      the bounds on requests, with their reasons
fields      the fields of a request, checked
model       a SavedModel: what kind it is, and its signatures
turns       requests take turns at the model, in calls that several may share
page        the page to play on, with its headers
pieces      how tokens are written, and what else might stand in their place
reading     long texts, segment by segment
generation  /generate and /stream, a few tokens at a time
sessions    caches that the server keeps
pace        how much work a turn takes on
parts       texts whose work is cut into turns: blanks, scores of XLNet, answers
texts       the routes that compute each text by itself
metrics     Prometheus metrics and the log of requests
routes      the routes, from HTTP to answers and back
running     from the socket to the last answer
"""
