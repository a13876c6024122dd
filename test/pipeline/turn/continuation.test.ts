/** What a continuation repeats of the text before it, and what is left of it. */
import fc from 'fast-check'
import t from 'tap'
import { repeatLength } from '../../../src/pipeline/turn/continuation.ts'
import { search } from '../../support/property.ts'

const spaceOf = (text: string) => /\s*$/.exec(text)?.[0] ?? ''
const cut = (text: string, beginning: string) => repeatLength(text, spaceOf(text), beginning, true)

t.test('the longest repetition from 12 to 200 characters is cut, a shorter one stays', async t => {
  const text = 'It was the best of times, it was the worst of times'
  t.equal(cut(text, 'it was the worst of times, it was'), 25)
  t.equal(cut(text, ' of times, it was'), 0, 'nine characters may be meant')
  t.equal(cut(text, `${text}.`), text.length)
  const long = `${'x'.repeat(10)}${'0123456789'.repeat(30)}`
  t.equal(cut(long, `${long.slice(-200)}!`), 200)
})

t.test('white space that the endpoint did not get is not said twice', async t => {
  t.equal(cut('Hello ', ' world'), 1)
  t.equal(cut('Hello ', 'world'), 0)
  t.equal(cut('Hello\n\n', '\nworld'), 1)
  t.equal(cut('a sentence that ends ', 'sentence that ends here'), 19)
})

t.test('it waits only while more may show a longer repetition', async t => {
  const text = 'It was the best of times, it was the worst of times'
  t.equal(repeatLength(text, '', 'it was the wor', false), null)
  t.equal(repeatLength(text, '', 'it was the wax', false), 0)
  t.equal(repeatLength(text, '', ', and so', false), 0)
})

t.test('text before and rest make the whole, whatever is repeated and however it comes', async () => {
  const characters = fc.array(fc.constantFrom('a', 'b', 'word ', 'é', '\n', 'one two three '), {
    minLength: 1,
    maxLength: 40,
  })
  fc.assert(
    fc.property(characters, characters, fc.nat(), (before, after, repeats) => {
      const text = `${before.join('')}#${before.length}/${after.length}.`
      const rest = `${after.join('')}?`
      const again = text.slice(-Math.min(text.length, 12 + (repeats % 150)))
      if (again.length < 12) return true
      const beginning = again + rest
      for (let at = 1; at <= beginning.length; at++) {
        const cut = repeatLength(text, '', beginning.slice(0, at), at === beginning.length)
        if (cut === null) continue
        return text + beginning.slice(cut) === text + rest
      }
      return false
    }),
    search(300),
  )
})
