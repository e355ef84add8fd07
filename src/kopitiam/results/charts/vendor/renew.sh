#!/bin/sh
# Fetches the chart library again, in the versions named here, and writes down what it is: make charts
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
npm init --yes >/dev/null
npm install --no-audit --no-fund --save-exact vega@6.4.0 vega-lite@6.5.0 vega-interpreter@2.3.2 esbuild@0.28.2
for name in vega vega-lite; do
    cp "node_modules/$name/build/$name.min.js" "$here/$name.min.js"
done
# The interpreter comes as a module with one import; a page has no place to look that up.
npx esbuild node_modules/vega-interpreter/build/vega-interpreter.js \
    --bundle --minify --format=esm --legal-comments=none --outfile="$here/vega-interpreter.min.js"
for name in vega vega-lite vega-interpreter; do
    cp "node_modules/$name/LICENSE" "$here/LICENSE.$name"
done
cd "$here"
sha256sum ./*.min.js LICENSE.* | sed 's#\./##' >SHA256SUMS
