/** Lines of `sluice keys list`, on a terminal and in a pipe. */
import t from 'tap'
import { keyTable } from '../../../src/apps/commands/keys.ts'
import { someKey } from '../../storage/records.ts'

const keys = [
  someKey({
    hash: 'aa',
    kind: 'management',
    label: 'sk-gw-m...1',
    name: 'ops',
    createdAt: '2026-01-01T00:00:00.000Z',
  }),
  someKey({
    hash: 'bbb',
    kind: 'inference',
    label: 'sk-gw...2',
    name: 'app\u001b[2J',
    createdAt: '2026-01-02T00:00:00.000Z',
    disabled: true,
  }),
]

t.test('on a terminal it is a table with a head, which no name can change', async t => {
  t.same(keyTable(keys, true), [
    'hash  kind        key          state     created                   name',
    'aa    management  sk-gw-m...1  active    2026-01-01T00:00:00.000Z  ops',
    'bbb   inference   sk-gw...2    disabled  2026-01-02T00:00:00.000Z  app [2J',
  ])
})

t.test('in a pipe each key is a line of columns with tabs between them', async t => {
  t.same(keyTable(keys, false), [
    'aa\tmanagement\tsk-gw-m...1\tactive\t2026-01-01T00:00:00.000Z\tops',
    'bbb\tinference\tsk-gw...2\tdisabled\t2026-01-02T00:00:00.000Z\tapp\u001b[2J',
  ])
  t.same(keyTable([], false), [])
})
