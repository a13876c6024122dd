/** Holds the width of comments, which the formatter leaves as they are. */
import { readdirSync, readFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import t from 'tap'

const ROOT = resolve(import.meta.dirname, '..')
const MAX_COLUMNS = 120

const files = ['src', 'bench', 'test'].flatMap(folder =>
  readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter(entry => entry.isFile() && /\.(?:ts|c)$/.test(entry.name))
    .map(entry => join(entry.parentPath, entry.name)),
)

t.test(`no line of a comment has more than ${MAX_COLUMNS} columns`, async t => {
  t.ok(files.length > 20, 'the sources were found')
  for (const file of files) {
    for (const [at, line] of readFileSync(file, 'utf8').split('\n').entries()) {
      if (!/^\s*(?:\/[/*]|\*)/.test(line)) continue
      const columns = [...line].length
      if (columns > MAX_COLUMNS) t.fail(`${relative(ROOT, file)}:${at + 1} has ${columns} columns`)
    }
  }
})
