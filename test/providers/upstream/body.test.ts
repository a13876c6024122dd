import t from 'tap'
import { TextBody } from '../../../src/providers/upstream/body.ts'

t.test('the text is the same in any chunks, and the chunks may be overwritten', t => {
  const bytes = Buffer.from('{"text":"漢字 😀 é"}')
  for (let size = 1; size <= bytes.length; size++) {
    const body = new TextBody(1000)
    for (let at = 0; at < bytes.length; at += size) {
      const chunk = Buffer.from(bytes.subarray(at, at + size))
      body.push(chunk)
      chunk.fill(0)
    }
    t.equal(body.text(), bytes.toString(), `chunks of ${size}`)
  }
  t.equal(new TextBody(10).text(), '')
  t.end()
})

t.test('the limit may be reached and not passed', t => {
  const body = new TextBody(10)
  body.push(Buffer.alloc(4, 97))
  body.push(Buffer.alloc(6, 98))
  t.equal(body.lengthBytes, 10)
  t.throws(() => body.push(Buffer.from('x')), {
    code: 'reply_too_large',
    message: 'The provider sent a reply that is too large',
  })
  t.end()
})

t.test('an error page is cut at its own limit', t => {
  const body = new TextBody(1000)
  t.equal(body.tryPush(Buffer.from('hello'), 8), true)
  t.equal(body.tryPush(Buffer.from('world'), 8), false)
  t.equal(body.tryPush(Buffer.from('more'), 8), false)
  t.equal(body.text(), 'hellowor')
  t.end()
})

t.test('invalid UTF-8 is replaced', t => {
  const body = new TextBody(1000)
  body.push(Buffer.from([0x61, 0xe6, 0xbc, 0x62, 0xff]))
  t.equal(body.text(), 'a\ufffdb\ufffd')
  t.end()
})

t.test('a body that drips costs its bytes and not an object for each', t => {
  const body = new TextBody(4 * 1024 * 1024)
  const byte = Buffer.from('x')
  const before = process.memoryUsage()
  for (let at = 0; at < 2 * 1024 * 1024; at++) body.push(byte)
  const after = process.memoryUsage()
  const grown = after.arrayBuffers + after.heapUsed - before.arrayBuffers - before.heapUsed
  t.equal(body.text().length, 2 * 1024 * 1024)
  t.ok(grown < 32 * 1024 * 1024, `${(grown / 1024 / 1024).toFixed(1)} MiB`)
  t.end()
})
