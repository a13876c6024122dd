/** Calls between threads: what travels together, what comes late, and what an end means to those who wait. */
import t from 'tap'
import { type Call, ThreadAnswers, ThreadCalls } from '../../src/base/thread-rpc.ts'
import { TestClock } from '../support/test-clock.ts'

const turn = () => new Promise(resolve => setImmediate(resolve))

/** Both ends; `answer` is the one that answers. */
function pair(answer: (question: string) => string | Promise<string>) {
  const clock = new TestClock()
  const sent: (readonly Call<string>[])[] = []
  const replies: (readonly unknown[])[] = []
  const calls: ThreadCalls<string, string> = new ThreadCalls(message => {
    sent.push(message)
    answers.receive(structuredClone(message))
  }, clock)
  const answers = new ThreadAnswers<string, string>(answer, reply => {
    replies.push(reply)
    calls.receive(structuredClone(reply))
  })
  return { calls, answers, sent, replies, clock }
}

t.test('calls of one turn are one message, and so are their answers', async t => {
  const { calls, sent, replies } = pair(question => `${question}!`)
  const [one, two] = [calls.ask('one', null), calls.ask('two', null)]
  calls.tell('three')
  t.same(await Promise.all([one.answer, two.answer]), ['one!', 'two!'])
  t.equal(sent.length, 1)
  t.same(
    sent[0]?.map(({ question }) => question),
    ['one', 'two', 'three'],
  )
  t.same(replies.length, 1)
  t.equal(replies[0]?.length, 2, 'nobody waits for the third')
})

t.test('answers that come later travel together too, each to its call', async t => {
  const late = new Map(['a', 'b'].map(name => [name, Promise.withResolvers<string>()]))
  const { calls, replies } = pair(question => late.get(question)?.promise ?? 'at once')
  const [a, b, c] = [calls.ask('a', null), calls.ask('b', null), calls.ask('c', null)]
  t.equal(await c.answer, 'at once')
  late.get('b')?.resolve('B')
  late.get('a')?.resolve('A')
  t.same(await Promise.all([a.answer, b.answer]), ['A', 'B'])
  t.equal(replies.length, 2)
})

t.test('who has waited for its time gets nothing, and a later answer changes nothing', async t => {
  const late = Promise.withResolvers<string>()
  const { calls, clock } = pair(() => late.promise)
  const asked = calls.ask('a', 500)
  await turn()
  clock.advance(500)
  t.equal(await asked.answer, undefined)
  late.resolve('too late')
  await turn()
  t.equal(clock.armed, 0)
})

t.test('when the other thread ends, nobody waits any longer, and no timer is left', async t => {
  const { calls, clock } = pair(() => new Promise(() => undefined))
  const [asked, limited] = [calls.ask('a', null), calls.ask('b', 500)]
  calls.flush()
  calls.close()
  t.same(await Promise.all([asked.answer, limited.answer]), [undefined, undefined])
  t.equal(clock.armed, 0)
})

t.test('nothing is done for a thread that has ended', async t => {
  const done: string[] = []
  const late = Promise.withResolvers<string>()
  const { calls, answers, replies } = pair(question => {
    done.push(question)
    return late.promise
  })
  calls.tell('first')
  calls.ask('second', null)
  calls.flush()
  answers.close()
  calls.tell('third')
  calls.flush()
  late.resolve('for nobody')
  await turn()
  t.same(done, ['first', 'second'])
  t.same(replies, [])
})
