-- How many ready jobs of one partition would be handed out before a job of another.
--
-- keys:      queues, then the base of the queue
-- arguments: now, call, forget, width, rank, id
-- answer:    how many are ahead, how many of these have a higher id
-- uses:      time record leave bucket shelf notes lease kept due stand
-- later:     ids aside moves
apply_due(KEYS[2])
return {stand(KEYS[2], ARGV[5], ARGV[6])}
