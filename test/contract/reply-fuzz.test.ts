/** A sample of replies with something wrong at any place; test/heavy/fuzz-habits.test.ts has many more of them. */
import t from 'tap'
import { fuzzReplies } from '../support/reply-fuzz.ts'

t.test('no reply with something wrong in it makes the gateway fail or touches another stream', t =>
  fuzzReplies(t, 1, 600),
)
