/** The server tools files, text_editor and memory over HTTP. */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { writePdf } from '../support/pdf.ts'
import { type Fields, MODEL, resultsOf, startFileTools } from '../support/world.ts'

const FILES = { type: 'gateway:files' }
const EDITOR = { type: 'gateway:text_editor' }
const MEMORY = { type: 'gateway:memory' }

for (const stream of [false, true]) {
  t.test(`files are written, listed, read and edited, ${stream ? 'streamed' : 'whole'}`, async t => {
    const { play, content } = await startFileTools(t)
    const { response, results, events } = await play(
      FILES,
      'files',
      [
        { operation: 'write', filename: 'notes.txt', content: 'one two one' },
        { operation: 'edit', filename: 'notes.txt', old_string: 'two', new_string: '2' },
        { operation: 'read', filename: 'notes.txt' },
        {
          operation: 'edit',
          filename: 'notes.txt',
          old_string: '2',
          new_string: '3',
          new_filename: 'other.md',
        },
        { operation: 'list', filename_filter: 'OTHER' },
        { operation: 'list' },
      ],
      { stream },
    )
    const told = resultsOf(results).map(each => each['result'] as unknown as Record<string, unknown>)
    t.match(told[0], { file_id: /^gw_file_/, filename: 'notes.txt' })
    t.not(told[1]?.['file_id'], told[0]?.['file_id'], 'an edit is a new file')
    t.match(told[2], { file_id: told[1]?.['file_id'], content: 'one 2 one' }, 'the newest of the name')
    t.equal(await content(String(told[0]?.['file_id'])), 'one two one', 'the first one stays')
    t.equal(await content(String(told[3]?.['file_id'])), 'one 3 one')
    t.match(told[4], { files: [{ filename: 'other.md', bytes: 9 }], has_more: false })
    t.match(told[5], { files: { length: 3 } })
    t.match(response.output[0], {
      type: 'gateway:files',
      status: 'completed',
      operation: 'write',
      filename: 'notes.txt',
      file_id: told[0]?.['file_id'],
      call_id: String,
      result: /"file_id"/,
    })
    t.equal(response.output.length, 7)
    t.match(response.usage, { server_tool_use_details: { tool_calls_executed: 6 } })
    if (stream) {
      const added = events.filter(({ type }) => type === 'response.output_item.added')
      t.match(added[0], { item: { type: 'gateway:files', status: 'in_progress', operation: 'write' } })
    }
  })
}

t.test('what cannot be done is told to the model, and shown', async t => {
  const { play, upload } = await startFileTools(t, { storedFiles: { maxFileBytes: 2_000, maxFiles: 5 } })
  await upload('binary', Buffer.from([1, 0, 2]))
  await upload('latin1', Buffer.from([0xe9]))
  await upload('a.txt', 'same same')
  const cases: readonly (readonly [Fields, RegExp])[] = [
    [{}, /^operation: /],
    [{ operation: 'delete' }, /^operation: /],
    [{ operation: 'read' }, /^file_id or filename: /],
    [{ operation: 'read', filename: 'none' }, /no such file/],
    [{ operation: 'read', file_id: 'gw_file_000000000000000000000000' }, /no such file/],
    [{ operation: 'read', file_id: '../../etc/passwd' }, /no such file/],
    [{ operation: 'read', filename: '/etc/passwd' }, /no such file/],
    [{ operation: 'read', filename: 1 }, /^filename: must be a string/],
    [{ operation: 'read', filename: 'binary' }, /not text/],
    [{ operation: 'read', filename: 'latin1' }, /not text/],
    [{ operation: 'write', filename: 'x' }, /^content: is required/],
    [{ operation: 'write', filename: '..', content: 'x' }, /^filename: must end in a file name/],
    [{ operation: 'write', filename: 'x'.repeat(300), content: 'x' }, /^filename: must have at most/],
    [{ operation: 'write', filename: 'x', content: 'x'.repeat(2_001) }, /too large/],
    [{ operation: 'edit', filename: 'a.txt', new_string: 'x' }, /^old_string: is required/],
    [{ operation: 'edit', filename: 'a.txt', old_string: '', new_string: 'x' }, /is empty/],
    [{ operation: 'edit', filename: 'a.txt', old_string: 'other', new_string: 'x' }, /not in the file/],
    [{ operation: 'edit', filename: 'a.txt', old_string: 'same', new_string: 'x' }, /more than once/],
  ]
  const { response, results } = await play(
    FILES,
    'files',
    cases.map(([args]) => args),
  )
  for (const [at, [args, problem]] of cases.entries()) {
    const error = String(resultsOf(results)[at]?.['error'])
    t.match(error, problem, JSON.stringify(args).slice(0, 80))
    t.match(response.output[at], { type: 'gateway:files', status: 'incomplete', error })
  }
  const fill = (name: string) => ({ operation: 'write', filename: name, content: 'x' })
  const full = await play(FILES, 'files', [fill('a'), fill('b'), fill('c')])
  t.match(resultsOf(full.results), [
    { result: {} },
    { result: {} },
    { error: /limit of 5 files per workspace/ },
  ])
})

t.test('names lead nowhere, and workspaces stay apart', async t => {
  const folder = join(t.testdir({}), 'files')
  const { play, keyIn, upload } = await startFileTools(t, { storedFiles: { url: `file:${folder}` } })
  const other = await keyIn('ws_other')
  const id = await upload('secret.txt', 'a canary')
  const names = ['../../escape', '/tmp/escape', '..\\escape', '\u202eescape', 'a\0b', './escape']
  const written = await play(
    FILES,
    'files',
    names.map(filename => ({ operation: 'write', filename, content: 'x' })),
  )
  for (const { result } of resultsOf(written.results) as unknown as { result: { filename: string } }[])
    t.match(result.filename, /^(escape|ab)$/)
  t.same(readdirSync(join(folder, '..')), ['files'])
  for (const name of readdirSync(folder)) t.match(name, /^gw_file_[0-9A-Za-z]{24}$/)
  const { results } = await play(
    FILES,
    'files',
    [
      { operation: 'list' },
      { operation: 'read', file_id: id },
      { operation: 'read', filename: 'secret.txt' },
      { operation: 'edit', file_id: id, old_string: 'canary', new_string: 'x' },
    ],
    { apiKey: other },
  )
  t.match(resultsOf(results), [
    { result: { files: [], has_more: false } },
    { error: 'There is no such file' },
    { error: 'There is no such file' },
    { error: 'There is no such file' },
  ])
  t.notMatch(results.join(), 'canary')
})

t.test('a PDF is read as text, and a long text is cut for the model', async t => {
  const { play, upload } = await startFileTools(t)
  await upload('a.pdf', writePdf({ pages: ['First page', 'Second page'] }))
  await upload('b.pdf', '%PDF-1.7 broken')
  await upload('long.txt', 'x'.repeat(300_000))
  await upload('huge.txt', 'x'.repeat(4_200_000))
  const read = (filename: string) => ({ operation: 'read', filename })
  const { results } = await play(FILES, 'files', ['a.pdf', 'b.pdf', 'long.txt', 'huge.txt'].map(read))
  t.match(results[0], /First page.*Second page/)
  t.match(results[1], /cannot be read/)
  t.ok((results[2]?.length ?? 0) < 201_000)
  t.match(results[2], /The result was cut/)
  t.match(results[3], /too large/)
})

for (const stream of [false, true]) {
  t.test(`text_editor creates, views, replaces and inserts, ${stream ? 'streamed' : 'whole'}`, async t => {
    const { play } = await startFileTools(t)
    const path = '/list.md'
    const { response, results } = await play(
      EDITOR,
      'text_editor',
      [
        { command: 'create', path, file_text: 'one\ntwo\nthree\n' },
        { command: 'str_replace', path, old_str: 'two', new_str: '2' },
        { command: 'insert', path, insert_line: 0, new_str: 'zero' },
        { command: 'insert', path: 'list.md', insert_line: 4, insert_text: 'four\nfive' },
        { command: 'view', path },
        { command: 'view', path, view_range: [2, 3] },
        { command: 'view', path, view_range: [5, -1] },
      ],
      { stream },
    )
    t.equal(results[4], '1\tzero\n2\tone\n3\t2\n4\tthree\n5\tfour\n6\tfive\n')
    t.equal(results[5], '2\tone\n3\t2\n')
    t.equal(results[6], '5\tfour\n6\tfive\n')
    t.match(response.output[0], {
      type: 'gateway:text_editor',
      status: 'completed',
      command: 'create',
      filePath: path,
    })
  })
}

t.test('commands that text_editor cannot do are told to the model', async t => {
  const { play } = await startFileTools(t)
  const cases: readonly (readonly [Fields, RegExp])[] = [
    [{ command: 'undo_edit', path: 'a' }, /^command: /],
    [{ command: 'view' }, /^path: is required/],
    [{ command: 'view', path: 'none' }, /no such file/],
    [{ command: 'create', path: 'a' }, /^file_text: is required/],
    [{ command: 'create', path: 'a/b', file_text: 'x' }, /no folders/],
    [{ command: 'create', path: '../a', file_text: 'x' }, /no folders/],
    [{ command: 'create', path: '/', file_text: 'x' }, /name of a file/],
    [{ command: 'create', path: '..', file_text: 'x' }, /must end in a file name/],
    [{ command: 'create', path: 'a', file_text: 'x x' }, /was written/],
    [{ command: 'str_replace', path: 'a', old_str: 'x', new_str: 'y' }, /more than once/],
    [
      { command: 'insert', path: 'a', insert_line: 2, new_str: 'y' },
      /^insert_line: must be an integer from 0 to 1/,
    ],
    [{ command: 'insert', path: 'a', new_str: 'y' }, /^insert_line: /],
    [{ command: 'insert', path: 'a', insert_line: 0 }, /^new_str: /],
    [{ command: 'view', path: 'a', view_range: [0, 1] }, /^view_range: /],
    [{ command: 'view', path: 'a', view_range: 'all' }, /^view_range: /],
  ]
  const { results } = await play(
    EDITOR,
    'text_editor',
    cases.map(([args]) => args),
  )
  for (const [at, [args, problem]] of cases.entries()) {
    const text = results[at] ?? ''
    t.match(text.startsWith('{') ? resultsOf([text])[0]?.['error'] : text, problem, JSON.stringify(args))
  }
})

for (const stream of [false, true]) {
  t.test(`memory is written, read and deleted, ${stream ? 'streamed' : 'whole'}`, async t => {
    const { play } = await startFileTools(t)
    const { response, results } = await play(
      MEMORY,
      'memory',
      [
        { action: 'write', key: 'colour', value: 'blue' },
        { action: 'write', key: 'colour', value: 'green' },
        { action: 'read', key: 'colour' },
        { action: 'read' },
        { action: 'delete', key: 'colour' },
        { action: 'delete', key: 'colour' },
        { action: 'read', key: 'colour' },
      ],
      { stream },
    )
    t.match(resultsOf(results), [
      { written: true },
      { written: true },
      { key: 'colour', value: 'green' },
      { keys: ['colour'], has_more: false },
      { deleted: true },
      { deleted: false },
      { error: 'Nothing is stored under this key' },
    ])
    t.match(response.output[0], {
      type: 'gateway:memory',
      status: 'completed',
      action: 'write',
      key: 'colour',
      value: 'blue',
    })
    t.match(response.output[2], { action: 'read', value: 'green' })
    t.match(response.output[6], { action: 'read', status: 'incomplete' })
  })
}

t.test('memory is of the end user, or of the workspace, and bounded', async t => {
  const { gateway, play, keyIn } = await startFileTools(t)
  const write = { action: 'write', key: 'k', value: 'a canary' }
  const read = { action: 'read', key: 'k' }
  const found = async (tool: Fields, fields: Fields & { apiKey?: string }): Promise<boolean> =>
    resultsOf((await play(tool, 'memory', [read], fields)).results)[0]?.['value'] === 'a canary'
  const ofWorkspace = { ...MEMORY, parameters: { scope: 'workspace' } }
  await play(MEMORY, 'memory', [write], { user: 'ann' })
  t.equal(await found(MEMORY, { user: 'ann' }), true)
  t.equal(await found(MEMORY, { user: 'bob' }), false)
  t.equal(await found(MEMORY, {}), false)
  t.equal(await found(ofWorkspace, { user: 'ann' }), false)
  await play(ofWorkspace, 'memory', [write], { user: 'ann' })
  t.equal(await found(MEMORY, {}), true)
  t.equal(await found(ofWorkspace, { user: 'bob' }), true)
  t.equal(await found(ofWorkspace, { apiKey: await keyIn('ws_other') }), false)
  const ofNobody = { ...MEMORY, parameters: { scope: 'end_user' } }
  const refused = await gateway.respond({ model: MODEL, input: 'x', tools: [ofNobody] })
  t.equal(refused.status, 400)
  t.match(await refused.text(), /tools\[0\]\.parameters\.scope: /)
  const { results } = await play(MEMORY, 'memory', [
    { action: 'forget' },
    { action: 'write', key: 'k' },
    { action: 'write', value: 'v' },
    { action: 'write', key: '', value: 'v' },
    { action: 'write', key: 'k'.repeat(257), value: 'v' },
    { action: 'write', key: 'k', value: 'v'.repeat(16_385) },
    { action: 'write', key: 'a\0b\ud800', value: '\0' },
    { action: 'read', key: 'ab\ufffd' },
  ])
  const told = resultsOf(results)
  for (const [at, problem] of [/^action: /, /^value: /, /^key: /, /^key: /, /^key: /, /^value: /].entries())
    t.match(told[at]?.['error'], problem)
  t.match(told[7], { value: '' })
})

t.test('a workspace can switch the tools off', async t => {
  const { gateway } = await startFileTools(t)
  const headers = { authorization: `Bearer ${gateway.managementKey}`, 'content-type': 'application/json' }
  const disabled = ['gateway:files', 'memory', 'openrouter:text_editor', 'file_search', 'apply_patch']
  const changed = await fetch(`${gateway.url}/workspaces/default`, {
    method: 'PATCH',
    headers,
    body: JSON.stringify({ disabled_server_tools: disabled }),
  })
  t.equal(changed.status, 200, await changed.text())
  for (const name of ['files', 'memory', 'text_editor', 'file_search', 'apply_patch']) {
    const reply = await gateway.respond({ model: MODEL, input: 'x', tools: [{ type: `gateway:${name}` }] })
    t.equal(reply.status, 403, name)
    t.match(await reply.text(), /tools\[0\]/)
  }
})
