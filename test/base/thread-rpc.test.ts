/** Calls between threads: what travels together, what comes late, and what an end means to those who wait. */
import t from 'tap'
import { TestClock } from '../support/test-clock.ts'
import { linkedEnds } from '../support/thread-link.ts'

const turn = () => new Promise(resolve => setImmediate(resolve))

/** A service with one method. */
interface Echo {
  say(question: string): string | Promise<string>
}

function pair(say: Echo['say']) {
  const clock = new TestClock()
  const ends = linkedEnds({ api: { echo: { say } as Echo }, clock })
  return { ...ends, echo: ends.caller.service('echo'), clock }
}

t.test('calls of one turn are one message, and so are their answers', async t => {
  const { echo, sent, replied } = pair(question => `${question}!`)
  const answers = [echo.ask('say', ['one'], null), echo.ask('say', ['two'], null)]
  echo.send('say', ['three'])
  t.same(await Promise.all(answers), ['one!', 'two!'])
  t.equal(sent.length, 1)
  t.same(
    sent[0]?.calls.map(({ args }) => args[0]),
    ['one', 'two', 'three'],
  )
  t.equal(replied.length, 1)
  t.equal(replied[0]?.answers.length, 2, 'nobody waits for the third')
})

t.test('answers that come later travel together too, each to its call', async t => {
  const late = new Map(['a', 'b'].map(name => [name, Promise.withResolvers<string>()]))
  const { echo, replied } = pair(question => late.get(question)?.promise ?? 'at once')
  const [a, b, c] = ['a', 'b', 'c'].map(name => echo.ask('say', [name], null))
  t.equal(await c, 'at once')
  late.get('b')?.resolve('B')
  late.get('a')?.resolve('A')
  t.same(await Promise.all([a, b]), ['A', 'B'])
  t.equal(replied.length, 2)
})

t.test('both ends may call, and the order of calls is kept', async t => {
  const heard: string[] = []
  interface Ours {
    readonly back: { hear(text: string): void }
  }
  const { caller, server } = linkedEnds<{ readonly echo: Echo }, Ours>({
    api: {
      echo: {
        say: question => {
          server.service('back').send('hear', [`heard ${question}`])
          return question
        },
      },
    },
  })
  caller.serve({ back: { hear: (text: string) => void heard.push(text) } })
  const echo = caller.service('echo')
  echo.send('say', ['one'])
  t.equal(await echo.ask('say', ['two'], null), 'two')
  t.same(heard, ['heard one', 'heard two'])
})

t.test('arguments may be made when their call is sent', async t => {
  const { echo, sent } = pair(question => question)
  let text = 'a'
  echo.sendLater('say', () => ({ args: [text] as [string], moved: [] }))
  text = 'ab'
  await turn()
  t.same(sent[0]?.calls[0]?.args, ['ab'])
})

t.test('who has waited for its time gets nothing, and a later answer changes nothing', async t => {
  const late = Promise.withResolvers<string>()
  const { echo, clock } = pair(() => late.promise)
  const answer = echo.ask('say', ['a'], 500)
  await turn()
  clock.advance(500)
  t.equal(await answer, undefined)
  late.resolve('too late')
  await turn()
  t.equal(clock.armed, 0)
})

t.test('when the other thread ends, nobody waits any longer, and no timer is left', async t => {
  const { caller, echo, clock } = pair(() => new Promise(() => undefined))
  const answers = [echo.ask('say', ['a'], null), echo.ask('say', ['b'], 500)]
  caller.flush()
  caller.close()
  t.same(await Promise.all(answers), [undefined, undefined])
  t.equal(await echo.ask('say', ['c'], null), undefined)
  t.equal(clock.armed, 0)
})

t.test('nothing is done for a thread that has ended', async t => {
  const done: string[] = []
  const late = Promise.withResolvers<string>()
  const { caller, echo, server, replied } = pair(question => {
    done.push(question)
    return late.promise
  })
  echo.send('say', ['first'])
  void echo.ask('say', ['second'], null)
  caller.flush()
  server.close()
  echo.send('say', ['third'])
  caller.flush()
  late.resolve('for nobody')
  await turn()
  t.same(done, ['first', 'second'])
  t.same(replied, [])
})
