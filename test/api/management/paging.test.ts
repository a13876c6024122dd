import t from 'tap'
import { flagParameter, pageOf, parameter, textParameter } from '../../../src/api/management/paging.ts'

const query = (text: string) => new URLSearchParams(text)
const refusal = (name: string) => ({ code: 'invalid_request', message: new RegExp(`^${name}: `) })

t.test('a page is 50 elements from the beginning unless asked otherwise', async t => {
  t.same(pageOf(query('')), { offset: 0, limit: 50 })
  t.same(pageOf(query('offset=0&limit=1')), { offset: 0, limit: 1 })
  t.same(pageOf(query('limit=100&offset=999999999999999&other=x')), {
    offset: 999_999_999_999_999,
    limit: 100,
  })
  for (const bad of ['-1', '', ' 1', '+1', '1.0', '0x1', '1e1', '１', 'NaN', '9999999999999999']) {
    t.throws(() => pageOf(query(`offset=${encodeURIComponent(bad)}`)), refusal('offset'), bad)
    t.throws(() => pageOf(query(`limit=${encodeURIComponent(bad)}`)), refusal('limit'), bad)
  }
  t.throws(() => pageOf(query('limit=0')), refusal('limit'))
  t.throws(() => pageOf(query('limit=101')), refusal('limit'))
  t.throws(() => pageOf(query('offset=1&offset=1')), refusal('offset'))
})

t.test('a parameter is given once or not at all', async t => {
  t.equal(parameter(query('a=1'), 'a'), '1')
  t.equal(parameter(query('b=1'), 'a'), undefined)
  t.throws(() => parameter(query('a=1&a=2'), 'a'), refusal('a'))
})

t.test('a text is bounded in characters and free of NUL', async t => {
  t.equal(textParameter(query(''), 'a', 3), undefined)
  t.equal(textParameter(query(`a=${encodeURIComponent('🔑🔑🔑')}`), 'a', 3), '🔑🔑🔑')
  for (const bad of ['', 'abcd', '🔑🔑🔑🔑', 'a\0'])
    t.throws(() => textParameter(query(`a=${encodeURIComponent(bad)}`), 'a', 3), refusal('a'))
})

t.test('a flag is true or false', async t => {
  t.equal(flagParameter(query('a=true'), 'a'), true)
  t.equal(flagParameter(query('a=false'), 'a'), false)
  t.equal(flagParameter(query(''), 'a'), false)
  for (const bad of ['', '1', 'TRUE', 'yes'])
    t.throws(() => flagParameter(query(`a=${bad}`), 'a'), refusal('a'))
})
