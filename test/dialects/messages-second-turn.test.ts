/** A client of POST /messages sends back what it got: every reply, streamed and whole, goes on at every provider. */
import t from 'tap'
import { GatewayError } from '../../src/base/errors.ts'
import { outgoingRequest } from '../../src/formats/outgoing.ts'
import { FORMATS } from '../../src/formats/table.ts'
import type { FormatName } from '../../src/protocol/provider.ts'
import { eventsOf } from '../support/assemble-reply.ts'
import { messages } from '../support/dialects.ts'
import { endpointOf } from '../support/endpoint.ts'
import { goldens } from '../support/goldens.ts'
import { RECORDINGS_MISSING, recordings, recordingsPresent } from '../support/recordings.ts'
import { finalOf } from './answers.ts'
import { eventsIn, framesOf, gathered, type Loose, REQUEST } from './messages-stream.ts'

const NAMES = Object.keys(FORMATS) as FormatName[]
const USER = { role: 'user', content: 'hi' }

/** What the clients of a stream and of a whole message have; nothing of a reply that failed. */
function contentsOf(format: FormatName, bytes: Buffer, streamed: boolean): readonly Loose[][] {
  const events = eventsOf(format, bytes, streamed)
  const response = finalOf(events)
  if (response.status === 'failed') return []
  const whole = JSON.parse(JSON.stringify(messages.body(response, REQUEST))) as Loose
  return [gathered(eventsIn(framesOf(events))), whole].map(({ content }) => content as Loose[])
}

/** The answer of the client that runs tools, or its next question. */
function nextTurn(content: readonly Loose[]): Loose {
  const results = content.flatMap(({ type, id }) =>
    type === 'tool_use' ? [{ type: 'tool_result', tool_use_id: id, content: 'done' }] : [],
  )
  return results.length === 0 ? USER : { role: 'user', content: results }
}

/** What a provider sealed for itself is refused by name elsewhere. */
const SEALED = /^input\[\d+\](?:\.type)?: (?:an item compaction cannot be sent|was made by another provider)/
/** Calls without a name or with a name of a field that no body may have: no client can send them back. */
const HOSTILE = ['wrong-types-everywhere.sse', 'call-in-pieces.sse']

function problemOf(work: () => unknown): string | null {
  try {
    work()
    return null
  } catch (thrown) {
    return thrown instanceof GatewayError ? thrown.message : String(thrown)
  }
}

for (const from of NAMES) {
  t.test(`a conversation goes on after replies of ${from}`, async t => {
    if (!recordingsPresent) t.comment(RECORDINGS_MISSING)
    const replies = [
      ...goldens(from)
        .filter(({ file }) => !HOSTILE.includes(file))
        .map(({ file, bytes, streamed }) => ({ file, streamed, bytes: () => bytes })),
      ...recordings(from).filter(({ httpStatus }) => httpStatus === 200 || httpStatus === null),
    ]
    let turns = 0
    let sealed = 0
    for (const { file, streamed, bytes } of replies) {
      for (const content of contentsOf(from, bytes(), streamed)) {
        turns++
        const asked = {
          model: 'acme/recorded',
          max_tokens: 100,
          messages: [USER, { role: 'assistant', content }, nextTurn(content)],
        }
        const refused = problemOf(() => messages.parse(asked))
        const problems = refused === null ? [] : [refused]
        for (const to of refused === null ? NAMES : []) {
          const problem = problemOf(() => {
            const request = outgoingRequest(messages.parse(asked), FORMATS[to], 'messages')
            FORMATS[to].encode({ request, stream: true, endUser: null }, endpointOf(to))
          })
          if (to !== from && SEALED.test(problem ?? '')) sealed++
          else if (problem !== null) problems.push(`${to}: ${problem}`)
        }
        t.same(problems, [], file)
      }
    }
    t.comment(`${turns} turns, ${sealed} sealed`)
    // Goldens alone are few.
    t.ok(turns > (recordingsPresent ? 20 : 2) && sealed * 5 < turns)
  })
}
