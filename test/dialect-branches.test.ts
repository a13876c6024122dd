/** A difference between dialects is a column of a table: nothing outside `dialects/` compares the name of one. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join, relative, resolve } from 'node:path'
import t from 'tap'
import { SyntaxKind } from 'typescript/unstable/ast'
import { isBinaryExpression, isCaseClause, isStringLiteral } from 'typescript/unstable/ast/is'
import { API } from 'typescript/unstable/sync'
import { DIALECT_NAMES } from '../src/protocol/request.ts'

const SRC = resolve(import.meta.dirname, '../src')
const NAMES: ReadonlySet<string> = new Set(DIALECT_NAMES)
const COMPARISONS: ReadonlySet<SyntaxKind> = new Set([
  SyntaxKind.EqualsEqualsEqualsToken,
  SyntaxKind.ExclamationEqualsEqualsToken,
  SyntaxKind.EqualsEqualsToken,
  SyntaxKind.ExclamationEqualsToken,
])

type Node = Parameters<typeof isBinaryExpression>[0]

function isName(node: Node): boolean {
  return isStringLiteral(node) && NAMES.has(node.text)
}

function isComparison(node: Node): boolean {
  if (isCaseClause(node)) return isName(node.expression)
  if (!isBinaryExpression(node) || !COMPARISONS.has(node.operatorToken.kind)) return false
  return isName(node.left) || isName(node.right)
}

/** The comparisons with names of dialects in these files, with the file of each. `folder`: for its settings. */
function comparisonsIn(folder: string, files: readonly string[]): readonly string[] {
  const settings = { compilerOptions: { noResolve: true, noLib: true, types: [] }, files }
  const config = join(folder, 'tsconfig.json')
  writeFileSync(config, JSON.stringify(settings))
  const api = new API()
  try {
    const [project] = api.updateSnapshot({ openProjects: [config] }).getProjects()
    return files.flatMap(file => {
      const source = project?.program.getSourceFile(file)
      if (source === undefined) throw new Error(`${file} was not read`)
      const found: string[] = []
      const visit = (node: Node): void => {
        if (isComparison(node)) found.push(`${relative(SRC, file)}: ${node.getText(source).slice(0, 80)}`)
        node.forEachChild(visit)
      }
      visit(source)
      return found
    })
  } finally {
    api.close()
  }
}

t.test('a comparison with the name of a dialect is found', async t => {
  const folder = t.testdir({
    'a.ts': `
      if (exchange.dialect === 'messages') one()
      if ('responses' != dialect.name) two()
      switch (name) { case 'chat-completions': three() }
      const TABLE = { messages: 1, 'chat-completions': 2 }
      four('messages', other === 'else', \`'messages' === dialect\`)`,
    config: {},
  })
  t.equal(comparisonsIn(join(folder, 'config'), [join(folder, 'a.ts')]).length, 3)
})

t.test('no source outside dialects/ branches on the name of a dialect', async t => {
  const mentions = new RegExp(DIALECT_NAMES.map(name => `['"\`]${name}['"\`]`).join('|'))
  const files = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
    .filter(file => file.endsWith('.ts') && !file.startsWith('dialects/'))
    .map(file => join(SRC, file))
    .filter(file => mentions.test(readFileSync(file, 'utf8')))
  t.ok(files.length > 5)
  t.same(comparisonsIn(t.testdir({}), files), [], 'give DIALECT_ABILITIES a column instead')
})
