import t from 'tap'
import { forbiddenKey } from '../../../src/protocol/json/body.ts'
import { body, json, nested, refused } from '../bodies.ts'

t.test('own keys that could become a prototype are refused wherever they are', t => {
  const rest = '"model":"a/b","input":"x"'
  refused(t, [
    ['at the top', json(`{${rest},"__proto__":{"stream":true}}`), '__proto__', /not an allowed field name/],
    ['a constructor at the top', json(`{${rest},"constructor":1}`), 'constructor'],
    ['a prototype at the top', json(`{${rest},"prototype":null}`), 'prototype'],
    ['in metadata', json(`{${rest},"metadata":{"__proto__":"x"}}`), 'metadata.__proto__'],
    [
      'in the settings of a plugin',
      json(`{${rest},"plugins":[{"id":"web","enabled":false,"__proto__":{}}]}`),
      'plugins[0].__proto__',
    ],
    [
      'in a content part',
      json(
        '{"model":"a/b","input":[{"role":"user","content":[{"type":"input_text","text":"","__proto__":1}]}]}',
      ),
      'input[0].content[0].__proto__',
    ],
    ['in image settings', json(`{${rest},"image_config":{"constructor":"x"}}`), 'image_config.constructor'],
    [
      'in the settings of a server tool',
      json(`{${rest},"tools":[{"type":"gateway:datetime","parameters":{"constructor":{}}}]}`),
      'tools[0].parameters.constructor',
    ],
    [
      'in preferences',
      json(`{${rest},"provider":{"max_price":{"__proto__":{"prompt":1}}}}`),
      'provider.max_price.__proto__',
    ],
    ['in a field nobody knows', json(`{${rest},"future":[[{"__proto__":[]}]]}`), 'future[0][0].__proto__'],
    [
      'in the schema of a function',
      json(`{${rest},"tools":[{"type":"function","name":"f","parameters":{"properties":{"__proto__":{}}}}]}`),
      'tools[0].parameters.properties.__proto__',
    ],
    [
      'in the schema of the answer',
      json(`{${rest},"text":{"format":{"type":"json_schema","name":"n","schema":{"__proto__":{}}}}}`),
      'text.format.schema.__proto__',
    ],
    [
      'under a key that is not repeated',
      body({ trace: { 'a b': json('{"__proto__":1}') } }),
      'trace.*.__proto__',
    ],
  ])
  t.equal(({} as { stream?: unknown }).stream, undefined, 'no prototype was changed')
  t.end()
})

t.test('a JSON Schema may have properties called constructor and prototype', t => {
  const schema = {
    type: 'object',
    properties: { constructor: {}, prototype: { items: [{ constructor: 1 }] } },
  }
  const mcp = {
    type: 'mcp_list_tools',
    id: 'm',
    server_label: 's',
    tools: [{ name: 'n', input_schema: schema }],
  }
  t.equal(forbiddenKey(body({ tools: [{ type: 'function', name: 'f', parameters: schema }] })), null)
  t.equal(forbiddenKey(body({ text: { format: { type: 'json_schema', name: 'n', schema } } })), null)
  t.equal(forbiddenKey(body({ input: [mcp] })), null)
  t.equal(forbiddenKey({ tools: [{ function: { name: 'f', parameters: schema } }] }), null)
  t.equal(
    forbiddenKey({ parameters: schema }),
    'parameters.properties.constructor: is not an allowed field name',
  )
  t.end()
})

t.test('nesting is bounded, and a very deep body costs no stack', t => {
  t.equal(forbiddenKey(nested(64)), null)
  t.match(forbiddenKey(nested(65)), /^body: must not be nested deeper than 64 levels/)
  const deep: unknown[] = []
  let inner = deep
  for (let level = 0; level < 200_000; level++) {
    const next: unknown[] = []
    inner.push(next)
    inner = next
  }
  t.match(forbiddenKey(deep), /64 levels/)
  t.end()
})

t.test('values that are no objects have no keys', t => {
  for (const value of [null, undefined, 1, 'constructor', true, [], {}]) t.equal(forbiddenKey(value), null)
  t.end()
})
