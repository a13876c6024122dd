import t from 'tap'
import { cleanFilename } from '../../../src/features/files/filename.ts'

t.test('a name is the last part of a path, without characters that nobody sees', async t => {
  for (const [given, kept] of [
    ['notes.txt', 'notes.txt'],
    ['../../etc/passwd', 'passwd'],
    ['..\\..\\windows\\system.ini', 'system.ini'],
    ['/', null],
    ['a/', null],
    ['a/..', null],
    ['..', null],
    ['.', null],
    ['..\u200b', null],
    ['.\u202e.', null],
    ['', null],
    [' \u00a0\t', null],
    ['a\0b.txt', 'ab.txt'],
    ['\r\nSet-Cookie: x', 'Set-Cookie: x'],
    ['report\u202etxt.exe', 'reporttxt.exe'],
    ['a\u2028b\u2066c', 'abc'],
    ['\ud800x', 'x'],
    ['cafe\u0301.txt', 'caf\u00e9.txt'],
    ['\u65e5\u672c.pdf', '\u65e5\u672c.pdf'],
    ['.env', '.env'],
    ['\uff0e\uff0e\uff0fx', '\uff0e\uff0e\uff0fx'],
    ['x'.repeat(255), 'x'.repeat(255)],
    ['x'.repeat(256), null],
    [`a/${'x'.repeat(255)}`, 'x'.repeat(255)],
    ['x'.repeat(1_000_000), null],
  ] as const) {
    const shown = encodeURIComponent(given.slice(0, 40).toWellFormed())
    if (kept === null)
      t.throws(() => cleanFilename(given, 'file'), { code: 'invalid_request', message: /^file: / }, shown)
    else t.equal(cleanFilename(given, 'file'), kept, shown)
  }
})
