# Build: compile once, then keep production packages only. Run: no compiler, no development packages, no root.
FROM node:22-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci
COPY tsconfig.json tsconfig.build.json ./
COPY src ./src
RUN npm run build && chmod +x dist/cli.js && npm prune --omit=dev

FROM node:22-bookworm-slim
# The admin port stays on the loopback of the container, where the health check is: it asks for no key.
ENV NODE_ENV=production \
    GATEWAY_HOST=0.0.0.0
WORKDIR /app
COPY --from=build --chown=node:node /app/package.json ./
COPY --from=build --chown=node:node /app/node_modules ./node_modules
COPY --from=build --chown=node:node /app/dist ./dist
RUN ln -s /app/dist/cli.js /usr/local/bin/sluice && mkdir data && chown node:node data
USER node
VOLUME /app/data
EXPOSE 8080 9090
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:' + (process.env.GATEWAY_ADMIN_PORT || 9090) + '/healthz').then(r => process.exit(r.ok ? 0 : 1), () => process.exit(1))"]
CMD ["node", "--disable-warning=ExperimentalWarning", "dist/main.js"]
