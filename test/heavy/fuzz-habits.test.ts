/** Replies with something wrong at any place, for some minutes: what a short sample has not met. */
import t from 'tap'
import { fuzzReplies } from '../support/reply-fuzz.ts'

/** Each round has a gateway of its own. */
const ROUNDS = 12
const REQUESTS = 1_500

for (let round = 1; round <= ROUNDS; round++) {
  t.test(`round ${round}: no reply makes the gateway fail or touches another stream`, t =>
    fuzzReplies(t, 1_000 + round, REQUESTS),
  )
}
