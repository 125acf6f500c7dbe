{
  description = "sandboxo: sandboxes for untrusted code";

  inputs.nixpkgs.url = "nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      systems = [ "x86_64-linux" "aarch64-linux" ];
      each = make: nixpkgs.lib.genAttrs systems (system: make nixpkgs.legacyPackages.${system});
    in
    {
      packages = each (pkgs: rec {
        # Static, so that no image has to have a libc for it.
        agent = pkgs.pkgsStatic.rustPlatform.buildRustPackage {
          pname = "sandboxo-agent";
          version = "0.1.0";
          src = ../.;
          cargoLock.lockFile = ../Cargo.lock;
          cargoBuildFlags = [ "-p" "sandboxo-agent" ];
          buildType = "agent";
          doCheck = false;
        };

        sandboxo = pkgs.rustPlatform.buildRustPackage {
          pname = "sandboxo";
          version = "0.1.0";
          src = ../.;
          cargoLock.lockFile = ../Cargo.lock;
          cargoBuildFlags = [ "-p" "sandboxo" ];
          # The tests need root and runsc: ./dev test.
          doCheck = false;
          nativeBuildInputs = [ pkgs.installShellFiles ];
          postInstall = ''
            cp ${agent}/bin/sandboxo-agent $out/bin/
            $out/bin/sandboxo man --dir man
            installManPage man/*.1
            for shell in bash zsh fish; do
              $out/bin/sandboxo completions $shell > sandboxo.$shell
            done
            installShellCompletion --cmd sandboxo \
              --bash sandboxo.bash --zsh sandboxo.zsh --fish sandboxo.fish
          '';
          meta.mainProgram = "sandboxo";
        };

        default = sandboxo;
      });

      nixosModules.default = { pkgs, lib, ... }: {
        imports = [ ./sandboxo.nix ];
        services.sandboxo.package =
          lib.mkDefault self.packages.${pkgs.stdenv.hostPlatform.system}.sandboxo;
      };
    };
}
