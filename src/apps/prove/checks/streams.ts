/** Checks of streams: their frames, and the grammar of their events. */
import { BASIS, type Check, type CheckRow, checksOf, fail, faultless, pass, skip } from '../check.ts'
import type { TestedDialectName } from '../dialects.ts'
import { DONE } from '../sse.ts'
import { callFaults, calling, isCut, SAMPLED, whenOk } from './replies.ts'

interface RuleRow {
  readonly rule: string
  readonly dialect: TestedDialectName
  readonly asserts: string
  readonly matters: string
}

/** Rules of the grammars. */
const GRAMMAR_RULES: readonly RuleRow[] = [
  {
    rule: 'names',
    dialect: 'responses',
    asserts: 'each event has an event: field that is equal to the type in its data',
    matters: 'clients with an EventSource dispatch events by name',
  },
  {
    rule: 'sequence',
    dialect: 'responses',
    asserts: 'sequence_number begins at 0 and increases with each event',
    matters: 'clients use this number to order events, and to continue after an interruption',
  },
  {
    rule: 'opening',
    dialect: 'responses',
    asserts: 'the first event is response.created',
    matters: 'clients create their response object from it',
  },
  {
    rule: 'items',
    dialect: 'responses',
    asserts: 'each item is added once and done once, with rising output_index; events belong to an open item',
    matters: 'SDKs throw on an event for an item that they do not know',
  },
  {
    rule: 'parts',
    dialect: 'responses',
    asserts: 'each part is added and done, with its deltas in between',
    matters: 'SDKs throw on a delta for a part that they do not know',
  },
  {
    rule: 'deltas',
    dialect: 'responses',
    asserts: 'the deltas add up to the text of the done events',
    matters: 'what a reader has seen differs from what is stored',
  },
  {
    rule: 'final',
    dialect: 'responses',
    asserts: 'the output of the terminal event has the items that were done',
    matters: 'the next turn is sent with this output',
  },
  {
    rule: 'terminal',
    dialect: 'responses',
    asserts: 'exactly one terminal event ends the stream, with its own status',
    matters: 'without it, clients wait, or mistake half an answer for a whole one',
  },
  {
    rule: 'ids',
    dialect: 'responses',
    asserts: 'the response has one id in all events',
    matters: 'the id is how the response is found again',
  },
  {
    rule: 'usage',
    dialect: 'responses',
    asserts: 'the terminal event has usage',
    matters: 'callers are billed, and set limits, by these numbers',
  },
  {
    rule: 'chunks',
    dialect: 'chat',
    asserts: 'all chunks are chat.completion.chunk objects, with one id and one created',
    matters: 'clients join chunks by their id',
  },
  {
    rule: 'role',
    dialect: 'chat',
    asserts: 'the role comes with or before the first content',
    matters: 'clients create the message from the first delta',
  },
  {
    rule: 'finish',
    dialect: 'chat',
    asserts: 'one chunk has a finish_reason that the reference lists, and no content follows it',
    matters: 'agents use it to decide whether to run functions',
  },
  {
    rule: 'usage',
    dialect: 'chat',
    asserts: 'with include_usage the last chunk, and no other, has usage; its choices are empty',
    matters: 'callers are billed, and set limits, by these numbers',
  },
  {
    rule: 'done',
    dialect: 'chat',
    asserts: 'data: [DONE] is sent once, at the end',
    matters: 'clients read until they get it',
  },
]

const BASIS_BY_DIALECT: Readonly<Record<TestedDialectName, string>> = {
  responses: BASIS.responses,
  chat: BASIS.api,
}

const GRAMMAR_CHECKS = GRAMMAR_RULES.map(
  ({ rule, dialect: dialectName, ...row }): CheckRow => ({
    ...row,
    name: rule,
    dialects: [dialectName],
    basis: BASIS_BY_DIALECT[dialectName],
    async run(tester, dialect) {
      const text = await tester.sample(dialect, 'stream')
      const calledAnswer = await tester.sample(dialect, 'called-stream')
      // If one of the two samples failed, its request is shown for repeating.
      for (const answer of calledAnswer.reply.status === 200 ? [calledAnswer, text] : [text]) {
        tester.repeat = answer.repeat
        const verdict = whenOk(answer, ({ stream }) => {
          if (stream.events.length === 0) return fail('there are no events')
          const faults = dialect.violations(stream.events).filter(violation => violation.rule === rule)
          return faultless(
            faults.map(({ what }) => what),
            `${stream.events.length} events`,
          )
        })
        if (verdict.outcome !== 'pass' || answer === text) return verdict
      }
      return skip('there is no stream')
    },
  }),
)

export const STREAM_CHECKS: readonly Check[] = checksOf('stream', SAMPLED, [
  {
    name: 'type',
    asserts: 'a stream is answered with 200 and text/event-stream',
    matters: 'EventSource and SDKs refuse a stream of another type',
    basis: BASIS.sse,
    async run(tester, dialect) {
      const answer = await tester.sample(dialect, 'stream')
      const type = answer.reply.headers.get('content-type') ?? 'none'
      return whenOk(answer, () =>
        /^text\/event-stream\b/i.test(type) ? pass(type) : fail(`Content-Type is ${type}`),
      )
    },
  },
  {
    name: 'frames',
    asserts: 'each event is one JSON object (or [DONE]), closed by a blank line',
    matters: 'parsers throw, or drop the last event',
    basis: BASIS.sse,
    async run(tester, dialect) {
      const answer = await tester.sample(dialect, 'stream')
      return whenOk(answer, ({ stream }) => {
        const badEvent = stream.events.find(({ json, data }) => json === undefined && data !== DONE)
        if (badEvent !== undefined) return fail(`an event is not JSON: ${badEvent.data.slice(0, 60)}`)
        if (!stream.isClosed) return fail('no blank line follows the last event')
        return stream.events.length === 0
          ? fail('there are no events')
          : pass(`${stream.events.length} events`)
      })
    },
  },
  {
    name: 'end',
    asserts: 'the body of a stream ends as HTTP requires: with the last chunk, not with a cut connection',
    matters:
      'clients report a network error after a complete answer, or mistake a truncated one for complete',
    basis: BASIS.http1,
    async run(tester, dialect) {
      const { reply } = await tester.sample(dialect, 'stream')
      if (reply.end !== 'whole') return fail(`the end of the body: ${reply.end}`)
      return reply.isUtf8 ? pass('complete, UTF-8') : fail('the body is not UTF-8')
    },
  },
  {
    name: 'text',
    asserts: 'the stream contains text, and ends as a finished answer',
    matters: 'an empty stream is taken for what the model said',
    async run(tester, dialect) {
      const answer = await tester.sample(dialect, 'stream')
      return whenOk(answer, ({ understood: { text, end } }) => {
        if (end === 'failed') return fail('the stream ends with a failure')
        if (end === 'open') return fail('the stream ends without an end of the answer')
        if (text === '' && isCut(answer)) return skip('the model spent its tokens before its first word')
        return text === '' ? fail('the text is empty') : pass(`${text.length} characters`)
      })
    },
  },
  {
    name: 'call',
    asserts: 'a forced function call is streamed as a call, with its name and arguments that are JSON',
    matters: 'agents run what the arguments say',
    async run(tester, dialect) {
      const answer = await tester.sample(dialect, 'called-stream')
      return calling(tester, answer, ({ understood }) => callFaults(understood.calls[0], isCut(answer)))
    },
  },
  ...GRAMMAR_CHECKS,
])
