/** The pure parts of the parity run: replies as text, placeholders, differences, the self-check, and the page. */
import t from 'tap'
import { broken } from '../../bench/parity/broken.ts'
import { asksForStream, casesOf, type Play } from '../../bench/parity/cases.ts'
import { type Reply, replyText } from '../../bench/parity/client.ts'
import { withoutAdditions } from '../../bench/parity/compare.ts'
import { shortDiff } from '../../bench/parity/diff.ts'
import { normalise } from '../../bench/parity/normalise.ts'
import { parityPage } from '../../bench/parity/report.ts'

const ID = 'abcdefghij0123456789ABCD'
const OTHER = 'ABCDEFGHIJ0123456789abcd'

const UUID = '6ce5be5b-c35e-4c10-b698-fda73b9c8b1e'

const play: Play = {
  source: 'golden',
  name: 'openai-responses/x.sse',
  format: 'openai-responses',
  streamed: true,
  status: 200,
  contentType: 'text/event-stream',
  bytes: () => Buffer.from(''),
}

function reply(body: string, more: Partial<Reply> = {}): Reply {
  return {
    status: 200,
    statusText: 'OK',
    headers: [['Content-Type', 'application/json']],
    body: Buffer.from(body),
    complete: true,
    ...more,
  }
}

t.test('identifiers of our own are numbered in the order of their appearance', async t => {
  const text = `"gen-1790000000-abcdefghij0123456789" "msg_${ID}" "fc_${ID}" "msg_${ID}" "call_${OTHER}" "${UUID}"`
  t.equal(normalise(text, ''), '"<gen 1>" "<msg 2>" "<fc 3>" "<msg 2>" "<call 4>" "<uuid 5>"')
  t.equal(normalise(UUID, `{"id":"${UUID}"}`), UUID)
})

t.test('a wrong pairing of identifiers still shows', async t => {
  const right = normalise(`"msg_${ID}" "rs_${OTHER}" "msg_${ID}"`, '')
  const wrong = normalise(`"msg_${ID}" "rs_${OTHER}" "msg_${OTHER}"`, '')
  t.not(right, wrong)
})

t.test('identifiers and times of the provider stay as they are', async t => {
  const text = `{"id":"msg_${ID}","created_at":1700000000}`
  t.equal(normalise(text, `data: {"id": "msg_${ID}", "created_at": 1700000000}`), text)
})

t.test('what only looks like an identifier stays as it is', async t => {
  for (const text of [`"msg_${ID}x"`, `"xmsg_${ID}"`, `"msg_${ID.slice(1)}"`, `"-rs_${ID}"`, '"gen-1-short"'])
    t.equal(normalise(text, ''), text)
})

t.test('times and durations become placeholders; null stays', async t => {
  t.equal(
    normalise('{"created_at":1790000000,"completed_at":null,"timings_ms":{"parse":0.1,"total":12}}', ''),
    '{"created_at":<time>,"completed_at":null,"timings_ms":{"parse":<ms>,"total":<ms>}}',
  )
  t.equal(
    normalise('200 OK\nserver-timing: parse;dur=1.06, auth;dur=0.01\nx-request-id: abc\n\n{}', ''),
    '200 OK\nserver-timing: parse;dur=<ms>, auth;dur=<ms>\nx-request-id: <id>\n\n{}',
  )
})

t.test('blank lines between frames count once, other line breaks count', async t => {
  const stream = (body: string) => normalise(`200 OK\ncontent-type: text/event-stream\n\n${body}`, '')
  t.equal(stream('data: 1\n\n\n\ndata: 2\n\n'), stream('data: 1\n\ndata: 2\n\n'))
  t.not(stream('data: 1\n\ndata: 2\n\n'), stream('data: 1\ndata: 2\n\n'))
  t.not(normalise('200 OK\n\n{}\n\n\n', ''), normalise('200 OK\n\n{}\n\n', ''))
})

t.test('a reply is its status, its headers by name, its bytes and its end', async t => {
  const headers = [
    ['X-B', '2'],
    ['Date', 'today'],
    ['Content-Length', '2'],
    ['A', '1'],
  ] as const
  t.equal(replyText(reply('{}', { headers })), '200 OK\na: 1\nx-b: 2\n\n{}')
  t.equal(replyText(reply('{', { headers: [], complete: false })), '200 OK\n\n\n{\n(the connection broke)')
  const [one, two] = [0x80, 0x81].map(byte => replyText(reply('', { body: Buffer.of(byte) })))
  t.not(one, two, 'bytes that are no text stay apart')
})

t.test('a difference is told by its first line and its surroundings', async t => {
  t.equal(shortDiff('a\nb', 'a\nb'), null)
  t.equal(shortDiff('a\nb\nc', 'a\nx\ny'), 'line 2, and 1 more\n- b\n+ x')
  t.equal(shortDiff('a', 'a\nb'), 'line 2\n- (no such line)\n+ b')
  const long = 'x'.repeat(500)
  const [, left = ''] = shortDiff(`${long}1${long}`, `${long}2${long}`)?.split('\n') ?? []
  t.match(left, /^- …x{60}1x+…$/)
  t.ok(left.length < 140)
})

t.test('the self-check changes one byte where it is seen', async t => {
  const original = reply(`{"created_at":1790000000}`)
  const look = (one: Reply) => normalise(replyText(one), '')
  const changed = broken(original, one => look(one) !== look(original))
  t.not(look(changed), look(original))
  const differing = original.body.filter((byte, at) => byte !== changed.body[at])
  t.equal(differing.length, 1)
  t.equal(broken(reply(''), () => false).status, 201, 'without a body the status is another')
})

t.test('every reply is played in all ways that its format has', async t => {
  const cases = casesOf([
    play,
    { ...play, format: 'openai-chat', streamed: false },
    { ...play, source: 'foreign' },
  ])
  t.same(
    cases.map(one => [one.way, asksForStream(one)]),
    [
      ['streamed', true],
      ['whole', false],
      ['general', true],
      ['healed', true],
      ['guarded', true],
      ['streamed', true],
      ['whole', false],
      ['healed', false],
      ['guarded', false],
      ['streamed', true],
      ['whole', false],
    ],
  )
  t.equal(new Set(cases.map(one => one.id)).size, cases.length)
})

t.test('text that is meant to be new is left out, unless both sides have it', async t => {
  const additions = [{ pattern: /^x-new: .*\n/gm, reason: 'new' }]
  t.equal(withoutAdditions('a\nx-new: 1\nb', 'a\nb', additions), 'a\nb')
  t.equal(withoutAdditions('a\nx-new: 1\nb', 'a\nx-new: 2\nb', additions), 'a\nx-new: 1\nb')
})

t.test('the page counts what is equal, and tells intended differences apart', async t => {
  const cases = casesOf([play])
  const [first, second] = cases
  if (first === undefined || second === undefined) throw new Error('cases are missing')
  const differences = [
    { case: first, diff: 'line 1\n- a\n+ b' },
    { case: second, diff: 'line 2\n- c\n+ d' },
  ]
  const intended = [{ pattern: /whole\nline 2/, reason: 'c is d now' }]
  const page = parityPage(
    cases,
    { differences, statuses: new Map([[200, 5]]), repeated: [{ case: second, diff: 'line 3' }] },
    intended,
    5,
  )
  t.match(page, '3/5 equal')
  t.match(page, 'as openai-responses, streamed\n  line 1\n  - a\n  + b')
  t.match(page, '1 intended: c is d now')
  t.match(page, 'equal when played again: golden openai-responses/x.sse as openai-responses, whole\n  line 3')
  t.notMatch(page, '+ d')
})
