"""Webhooks: when a job is done or dead, its webhook is called. A call is itself a job, so that none is forgotten.

records  call            from the facts of a job that ends to the stored call and its message: pure
urls  address  guard     which URLs and addresses may be called
keys                     the signing keys
sender                   one try, by aiohttp (the extra `accoda[webhooks]`)
decide                   what becomes of a try: pure
dispatcher  sender_loop  many calls at once: the system job
log                      what was sent, and what came back
"""
