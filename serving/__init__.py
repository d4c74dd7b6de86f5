"""An HTTP server for a SavedModel: `python -m serving`. It imports TensorFlow and aiohttp, and nothing of txl_tf.

running     from the socket to the last answer
routes      the routes, from HTTP to answers and back
access      who may use the server
turns       requests take turns at the model, in calls that several may share
service     a model, ready to answer requests
model       a SavedModel: what kind it is, and its signatures
loading     a SavedModel in a directory of any name
answers/    generation, sessions, texts that are computed by themselves, and OpenAI's and TensorFlow Serving's requests
tensors     JSON as tensors and back, as TensorFlow Serving has it
page        the page to play on, with its headers
fields      the fields of a request, checked
limits      the bounds on requests, with their reasons
errors      errors that refuse a request, or the start
metrics     Prometheus metrics and the log of requests
terminal    only our own lines reach the terminal; the server's are lines of JSON
"""
